"""Of a process that a test starts: hands its program to a warm process (`tests.forks`), if that serves it."""

import handover

handover.hand_over()
