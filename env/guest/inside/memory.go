//go:build linux

package inside

import (
	"encoding/hex"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"deepswe/env/guest"
)

// stamp is the part of a file's status that changes whenever its content does. Commands cannot set the change time.
type stamp struct {
	device, inode    uint64
	size             int64
	modified, change int64
	// seen is when the status was taken.
	seen int64
}

func stampOf(info fs.FileInfo) stamp {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}
	}
	return stamp{
		device: st.Dev, inode: st.Ino, size: st.Size,
		modified: st.Mtim.Nano(), change: st.Ctim.Nano(), seen: time.Now().UnixNano(),
	}
}

// settled reports whether a later change will have another change time: the kernel's clock for files is coarse.
func (s stamp) settled() bool {
	const coarse = 100 * time.Millisecond
	return s.inode != 0 && s.seen-s.change > int64(coarse)
}

func (s stamp) same(as stamp) bool {
	s.seen, as.seen = 0, 0
	return s == as
}

// memories keeps what calls have found, for later calls with the same root.
type memories struct {
	mu    sync.Mutex
	roots map[string]*memory
}

// recall returns what is known of the files below root; nil if nothing is. If again is set, only what the host has
// told counts.
func (m *memories) recall(root string, again bool) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.roots[root]
	if last == nil || again && !last.told {
		return nil
	}
	return last
}

func (m *memories) keep(found *memory) {
	if found == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.roots, found.root)
	held := len(found.files)
	for _, one := range m.roots {
		held += len(one.files)
	}
	if m.roots == nil || held > mostRemembered {
		m.roots = map[string]*memory{}
	}
	m.roots[found.root] = found
}

// memory holds the versions of the files below root. It does not change any more once it is kept.
type memory struct {
	root  string
	files map[string]remembered
	told  bool // told by the host rather than read
}

type remembered struct {
	stamp stamp
	sum   [32]byte
}

// mostRemembered bounds the files of all memories, which count towards the sandbox's limit: about 50 MB.
const mostRemembered = 250_000

// newMemory returns an empty memory; nil if the file system of root is not one whose change times are known to be
// exact.
func newMemory(root string) *memory {
	const ext, xfs, btrfs, overlay, tmpfs = 0xef53, 0x58465342, 0x9123683e, 0x794c7630, 0x01021994
	var stat syscall.Statfs_t
	if syscall.Statfs(root, &stat) != nil {
		return nil
	}
	switch int64(stat.Type) { //nolint:unconvert // its type depends on the architecture
	case ext, xfs, btrfs, overlay, tmpfs:
		return &memory{root: root, files: map[string]remembered{}}
	}
	return nil
}

func (m *memory) add(f *treeEntry) {
	if m == nil || len(m.files) == mostRemembered || f.Kind != guest.KindFile || !f.stamp.settled() {
		return
	}
	sum, err := hex.DecodeString(f.Version)
	if err != nil || len(sum) != len(remembered{}.sum) || f.stamp.size != f.Size {
		return
	}
	m.files[f.Path] = remembered{f.stamp, [32]byte(sum)}
}

// remember keeps the versions of the files that the host has put below root, if they are as it says.
func (s *server) remember(c *guest.Call, root string) error {
	m := newMemory(root)
	for f, err := range c.Known() {
		if err != nil {
			return err
		}
		if m == nil {
			continue // the body is still read to its end
		}
		info, err := os.Lstat(join(root, f.Path))
		if err != nil || info.Size() != f.Size || info.ModTime().Unix() != f.Modified {
			continue
		}
		known := treeEntry{FileInfo: describe(f.Path, info), stamp: stampOf(info)}
		known.Version = f.Version
		m.add(&known)
	}
	if m != nil {
		m.told = true
	}
	s.memory.keep(m)
	return nil
}

// knows fills in the version of a file that has not changed.
func (m *memory) knows(f *treeEntry) bool {
	if m == nil {
		return false
	}
	was, ok := m.files[f.Path]
	if !ok || f.Kind != guest.KindFile || !was.stamp.same(f.stamp) {
		return false
	}
	f.Version = hex.EncodeToString(was.sum[:])
	return true
}
