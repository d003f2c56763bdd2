"""The leaderboard and the breakdown: their rows, cells, choices and notes."""
