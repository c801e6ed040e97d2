"""What is released and what it costs: releases, calibration, accountant, ledger."""
