"""Models of the devices at the pins of the circuits, written from their data sheets."""
