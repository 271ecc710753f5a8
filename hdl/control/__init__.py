"""Control: sequencer, loops, dispatch, ATTENTION, host registers, counters."""
