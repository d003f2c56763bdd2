"""The leaderboard and the breakdown: rows, cells, choices, and what is said of them."""
