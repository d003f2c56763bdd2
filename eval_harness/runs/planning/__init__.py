"""What a run will ask: configuration, questions, requests, and what is written of them before the first answer."""
