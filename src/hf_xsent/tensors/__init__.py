"""Fast tensor work that the papers do not talk about; a test holds each piece equal to a plain computation."""
