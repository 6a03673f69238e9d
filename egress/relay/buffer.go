package relay

import "sync"

const bufferSize = 32 << 10

// buffers has the buffers of connections that are passed on. A connection without traffic has none: ten thousand would take 640 MiB.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}
