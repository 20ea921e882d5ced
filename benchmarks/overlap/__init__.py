"""What overlap costs and buys: playing the next update while this one is learned, against taking turns."""
