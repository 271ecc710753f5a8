"""Models of memory chips and other devices at circuits' pins, written from data sheets."""
