// Comfort only: without it every chart, table and transcript is there all the same.
document.documentElement.classList.add("js");

// A click on a member's number brings its lines to the front, in every chart.
let focused = null;
for (const button of document.querySelectorAll(".legend .chip")) {
  button.addEventListener("click", () => {
    focused = focused === button.dataset.m ? null : button.dataset.m;
    for (const element of document.querySelectorAll(".series[data-m], .cell[data-m], .legend .chip"))
      element.classList.toggle("dim", focused !== null && element.dataset.m !== focused);
  });
}

// Transcripts that match every filter are shown.
const selects = [...document.querySelectorAll("[data-facet]")];
const blocks = [...document.querySelectorAll(".episode")];
const hits = document.querySelector(".hits");
function filter() {
  let shown = 0;
  for (const block of blocks) {
    const match = selects.every((s) => s.value === "" || block.dataset[s.dataset.facet] === s.value);
    block.hidden = !match;
    shown += match;
  }
  hits.textContent = shown + (shown === 1 ? " episode" : " episodes");
}
for (const select of selects) select.addEventListener("change", filter);
if (hits) filter();
