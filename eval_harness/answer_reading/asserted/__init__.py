"""Options that a response means by their text: by their own words (`own_words.py`), numbers among them (`numbers.py`), or by the words that
tell them apart (`telling.py`), as the sentence around them has it (`around.py`).

Functions return positions, None where they find nothing, () for more than one option. See also: where texts stand (`mentions.py`).
"""
