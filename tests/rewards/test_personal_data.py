"""What is personal data in text, and what only looks like it."""

from __future__ import annotations

import random
import time

import pytest

from rewards.personal_data import FINDERS, cards, has_iban_check, has_luhn_check, ibans

PERSONAL = {
    "email": [
        "ann@example.org",
        "Write to ann.lee+shop@mail.example.co.uk.",
        "ann@example.org.1",
        "<o'hara_99@sub-domain.example.travel>",
        "müller@exämple.de",
        "x" * 500 + "@example.org",
    ],
    "phone": [
        "+49 171 1234567",
        "+1 (555) 123-4567",
        "+441632960961",
        "+290 22158",
        "0049 171 1234567",
        "555-123-4567",
        "(555) 123-4567",
        "1-800-555-0199",
        "415 555 2671",
        "415.555.2671",
        "0171 1234567",
        "030/1234567",
        "01 23 45 67 89",
        "Call +49-30-901820, please.",
        "tel:+33123456789",
    ],
    "card": [
        "4111111111111111",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111 12/29",
        "5555555555554444",
        "2223003122003222",
        "378282246310005",
        "3782 822463 10005",
        "6011111111111117",
        "30569309025904",
        "3530111333300000",
        "4222222222222",
        "card 4000056655665556, thanks",
    ],
    "iban": [
        "DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00",
        "GB82 WEST 1234 5698 7654 32",
        "FR1420041010050500013M02606",
        "nl91abna0417164300",
        "IBAN: NO9386011117947.",
        "MT84MALT011000012345MTLCAST001S",
        "(CH9300762011623852957)",
    ],
}
HARMLESS = [
    "",
    "Order 4111111111111112 has shipped.",  # a wrong check digit
    "order 1234567890123452",  # a right check digit and no issuer
    "Order no. 20240517-000123456",
    "order #8830-221-45",
    "orders 12-555-123-4567 and 555-123-4567-89, change +1234567",
    "bins 100 01 23 45 67 89, root@10.0.0.1",
    "Order 00123456789",
    "invoice 2024-0517-1234",
    "#112-1234567-1234567",
    "tracking 1Z999AA10123456784",
    "On 2024-05-17 at 10:30:00, until 2024-06-01.",
    "17.05.2024 and 05/17/2024 and 05-17-2024",
    "2024-05-17T10:30:00+02:00",
    "It costs $1,299.00, not 1.299,00 EUR or +10000.",
    "1000000000 points, 100 200 300",
    "ISBN 978-3-16-148410-0",
    "192.168.100.1:8080, version 10.0.22631",
    "550e8400-e29b-41d4-a716-446655440000",
    "DE89370400440532013001",  # wrong check digits
    "DE8937040044053201300",  # a digit short
    "DE893704004405320130000",  # a digit more
    "XX89370400440532013000",  # no such country
    "follow @support, 3 @ 5 EUR, a@b",
    "left, down, right or up; 17",
    "π ≈ 3.14159265358979",
]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in PERSONAL.items() for text in texts])
def test_personal_data_is_found_once_and_taken_for_nothing_else(kind: str, text: str) -> None:
    assert {name: len(find(text)) for name, find in FINDERS.items()} == {name: int(name == kind) for name in FINDERS}


@pytest.mark.parametrize("text", HARMLESS)
def test_order_numbers_dates_and_prices_are_no_personal_data(text: str) -> None:
    assert {name: find(text) for name, find in FINDERS.items()} == {name: [] for name in FINDERS}


def test_several_in_one_text_are_all_found() -> None:
    text = "ann@example.org, 4111111111111111, 5555555555554444, DE89370400440532013000, +49 171 1234567, a@b.org"
    assert [len(find(text)) for find in FINDERS.values()] == [2, 1, 2, 1]


def test_check_digits_catch_every_wrong_digit_and_those_of_an_account_every_swap() -> None:
    for card in ("4111111111111111", "4539578763621486"):
        assert has_luhn_check(card)
        wrong = [card[:k] + d + card[k + 1 :] for k in range(16) for d in "0123456789" if d != card[k]]
        assert not any(map(has_luhn_check, wrong))
    iban = "DE89370400440532013000"
    assert has_iban_check(iban)
    changed = [iban[:k] + d + iban[k + 1 :] for k in range(2, 22) for d in "0123456789" if d != iban[k]]
    swapped = [iban[:k] + iban[k + 1] + iban[k] + iban[k + 2 :] for k in range(2, 21) if iban[k] != iban[k + 1]]
    assert not any(map(has_iban_check, changed + swapped))


def test_of_random_order_numbers_few_are_taken_for_a_card_and_none_for_an_account() -> None:
    stream = random.Random(0)
    orders = [str(stream.randrange(10**15, 10**16)) for _ in range(4000)]
    assert sum(bool(cards(order)) for order in orders) < 0.04 * len(orders)  # one in ten by the check digit alone
    assert not any(ibans(f"DE{order}123456") for order in orders[:20])


@pytest.mark.parametrize("kind", FINDERS)
@pytest.mark.parametrize(
    "piece",
    [*"a1@ é", "1 ", "1-", "+1", "+1 ", "(1", "a@", "a@a.", "@" + "a" * 63, "DE89", "A1 ", "555-", "a.", "é@é."],
)
def test_a_very_long_text_is_read_in_no_time(kind: str, piece: str) -> None:
    start = time.process_time()
    FINDERS[kind](piece * (200_000 // len(piece)))
    assert time.process_time() - start < 1.0
