"""Where another framework starts the parties and carries their frames: one file per framework."""
