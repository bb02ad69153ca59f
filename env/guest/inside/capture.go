//go:build linux

package inside

import (
	"os"
	"sync"
	"syscall"

	"deepswe/env/guest"
)

// recorder keeps the first and the last bytes of a stream and counts the others. It never holds more than its limits.
type recorder struct {
	reading sync.Mutex // held from a read until what it gave is written, which keeps the order
	mu      sync.Mutex
	most    int // of head
	head    []byte
	ring    []byte // the tail: grows to its limit, then overwrites its oldest bytes
	limit   int
	at      int // the index of the ring's oldest byte once it is full
	size    int64
	stopped bool
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return len(p), nil
	}
	n := len(p)
	r.size += int64(n)
	if room := r.most - len(r.head); room > 0 {
		k := min(room, len(p))
		r.head = append(r.head, p[:k]...)
		p = p[k:]
	}
	if r.limit == 0 {
		return n, nil
	}
	if len(p) > r.limit {
		p = p[len(p)-r.limit:]
	}
	if room := r.limit - len(r.ring); room > 0 {
		k := min(room, len(p))
		r.ring = append(r.ring, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(r.ring[r.at:], p)
		r.at = (r.at + k) % r.limit
		p = p[k:]
	}
	return n, nil
}

// stop ends the recording and returns it; what is written later is dropped.
func (r *recorder) stop() guest.Output {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	tail := r.ring
	if r.at > 0 {
		tail = append(append(make([]byte, 0, len(r.ring)), r.ring[r.at:]...), r.ring[:r.at]...)
	}
	o := guest.Output{Head: r.head, Tail: tail, Size: r.size}
	r.head, r.ring, r.at = nil, nil, 0
	return o
}

// record copies a stream into a recorder until it ends. It holds a buffer only while there is something to read: a
// background process may keep its streams open without writing for as long as the sandbox lives.
func (p *processes) record(to *recorder, from *os.File) {
	raw, err := from.SyscallConn()
	if err != nil {
		return // closed already
	}
	for ended := false; !ended && err == nil; {
		err = raw.Read(func(fd uintptr) (done bool) {
			n, err := p.recordOnce(to, int(fd))
			switch {
			case n > 0, err == syscall.EINTR:
			case err == syscall.EAGAIN:
				return false // ask again when there is something
			default:
				ended = true
			}
			return true
		})
	}
}

// recordOnce reads what there is, and never waits: n is 0 at the end, and where err says that there is nothing.
func (p *processes) recordOnce(to *recorder, fd int) (n int, err error) {
	buf, ok := p.buffers.Get().(*[32 << 10]byte)
	if !ok {
		buf = new([32 << 10]byte)
	}
	defer p.buffers.Put(buf)
	to.reading.Lock()
	defer to.reading.Unlock()
	if n, err = syscall.Read(fd, buf[:]); n > 0 {
		_, _ = to.Write(buf[:n])
	}
	return n, err
}

// drain records what is in a stream now, without waiting for the goroutine that usually does, and no more than a pipe
// holds: a background process may write faster than this reads.
func (p *processes) drain(to *recorder, from *os.File) {
	const mostInPipe = 1 << 20
	raw, err := from.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // fails on a stream that has ended, and was recorded whole
		for total := 0; total < mostInPipe; {
			n, err := p.recordOnce(to, int(fd))
			if n <= 0 && err != syscall.EINTR {
				return
			}
			total += max(n, 0)
		}
	})
}
