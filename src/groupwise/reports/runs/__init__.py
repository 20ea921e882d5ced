"""Several runs together: their arms, what these achieved over seeds, and one page about them."""
