"""What starts, orders and counts: sequencer, loops, dispatch, ATTENTION, host registers."""
