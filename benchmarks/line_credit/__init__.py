"""Credit inside an answer, held against what its lines were worth."""
