"""Models of memory chips and other devices at a circuit's pins, written from data sheets."""
