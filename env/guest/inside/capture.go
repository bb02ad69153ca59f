//go:build linux

package inside

import (
	"os"
	"sync"
	"syscall"

	"deepswe/env/guest"
)

// recorder keeps the first and last bytes of a stream, within its limits, and counts the rest.
type recorder struct {
	reading sync.Mutex // held from a read until its data is written, to keep the order
	mu      sync.Mutex
	most    int // the limit of head
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

// stop ends the recording and returns it. Later writes are ignored.
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

// record copies a stream into a recorder until the stream ends. It holds a buffer only while there is data, because
// a background process may keep its streams open without writing for the sandbox's whole life.
func (p *processes) record(to *recorder, from *os.File) {
	raw, err := from.SyscallConn()
	if err != nil {
		return // already closed
	}
	for ended := false; !ended && err == nil; {
		err = raw.Read(func(fd uintptr) (done bool) {
			n, err := p.recordOnce(to, int(fd))
			switch {
			case n > 0, err == syscall.EINTR:
			case err == syscall.EAGAIN:
				return false // wait until there is data
			default:
				ended = true
			}
			return true
		})
	}
}

// recordOnce reads what is available, without waiting. n is 0 at the end of the stream, and also if err reports
// that no data is available.
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

// drain records what is in a stream now, without waiting for record's goroutine. It reads no more than a pipe
// holds, because a background process may write faster than this reads.
func (p *processes) drain(to *recorder, from *os.File) {
	const mostInPipe = 1 << 20
	raw, err := from.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // fails if the stream has ended and was recorded completely
		for total := 0; total < mostInPipe; {
			n, err := p.recordOnce(to, int(fd))
			if n <= 0 && err != syscall.EINTR {
				return
			}
			total += max(n, 0)
		}
	})
}
