"""One party's run over real links: configuration, inputs, driver, state, outcome; and all parties in memory."""
