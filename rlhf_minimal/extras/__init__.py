"""Not needed to understand the algorithms: export, memory ledger, compiled decoding, trackers, learning curve."""
