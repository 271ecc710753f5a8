"""Control: sequencer, loops, dispatch, host registers, counters."""
