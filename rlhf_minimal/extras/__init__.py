"""What a reader of the algorithms need not pass: export, memory ledger, compiled decoding, trackers, learning curve."""
