"""The Submit tab: score uploaded answers and send them to the store or into a submission bundle."""
