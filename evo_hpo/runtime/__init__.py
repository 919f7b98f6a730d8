"""From a config to a result.

run          start a run or go on with one: folder, trackers, checkpoints, result
training     the loop: stages of generations of updates, an evolution step after each
measures     what the members are worth: success, or how well scorers order episodes
evaluate     plays episodes, for training and on common tasks
tasks        which tasks are for training, for fitness, for the result
metrics      what the episodes of an update were like
progress     how far a run is, everything but tensors
checkpoints  one immutable folder per generation
folder       who owns a run folder, and files that are whole or not there
resuming     what `resume=` asks for, and whether a run can go on with it
signals      SIGTERM is Ctrl-C
processes    several processes as one
setup        device, base and population of a config
members      one member of a stored run
export       `export`: a member as a peft adapter folder
play         `play`: a member turn by turn on the terminal
prefs        `prefs`: preference pairs from the episodes of runs
"""
