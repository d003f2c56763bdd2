"""Questions that want yes or no: the words themselves (`spoken.py`), the question's own words (`question.py`), opposites of them
(`opposites.py`, `exclusive.py`), denials (`denied.py`), the rules (`rules.py`)."""
