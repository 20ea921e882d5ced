"""Worked sums: additions in lines that can be checked one by one, and what each line was worth."""
