"""Parts and slots: an algorithm is an expression of small named parts."""
