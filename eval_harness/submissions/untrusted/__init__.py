"""Reading what strangers handed in: within limits, in a process that can be killed."""
