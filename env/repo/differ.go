package repo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"deepswe/env"
)

// differ turns changes into a diff, using a temporary repository that contains only the changed files.
type differ struct {
	base *Base
	sb   Tree
	dir  string

	total   int
	files   []string
	omitted []Omission
}

// content is a changed file before and after; a side is nil if the file does not exist there.
type content struct {
	path  string
	sides [2]*side
}

type side struct {
	mode string
	data []byte
}

// loaded is a change that has been read, or the reason why the patch omits it.
type loaded struct {
	content
	omitted string
	err     error
}

// loadsAtOnce limits concurrent reads. Reading a file mostly waits for the round trip to the sandbox.
const loadsAtOnce = 16

// diff reads the changes, those of existing files first, and compares. It reads all that it needs from the sandbox
// before the first original, because a sandbox may be closed to make room for its originals.
func (d *differ) diff(ctx context.Context, changes []change) ([]byte, error) {
	store, err := newStore(ctx, d.dir)
	if err != nil {
		return nil, err
	}
	defer store.abort()
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.isNew(), b.isNew()) })
	var all [][]loaded
	held := 0
	for group := range groups(changes) {
		full := held > maxTotal // then nothing is read any more: there may be very many large files
		files := load(make([]loaded, len(group)), func(i int, l *loaded) {
			if l.path = group[i].path; full {
				l.omitted = tooLarge()
				return
			}
			d.readAfter(ctx, group[i], l)
		})
		for i := range files {
			if held += files[i].size(); held > maxTotal {
				files[i].sides[1], files[i].omitted = nil, cmp.Or(files[i].omitted, tooLarge())
			}
		}
		all = append(all, files)
	}
	for g, group := range slices.Collect(groups(changes)) {
		for _, c := range load(all[g], func(i int, l *loaded) { d.readBefore(ctx, group[i], l) }) {
			if c.err != nil {
				return nil, c.err
			}
			if c.omitted == "" {
				c.omitted = d.afford(c)
			}
			switch {
			case c.omitted != "":
				d.omitted = append(d.omitted, Omission{Path: c.path, Reason: c.omitted})
			case c.sides != [2]*side{}:
				store.add(c.content)
				d.files = append(d.files, c.path)
			}
		}
		all[g] = nil
	}
	slices.Sort(d.files)
	return store.diff(ctx)
}

// groups divides changes into groups that fit into memory.
func groups(changes []change) iter.Seq[[]change] {
	const mostFiles, mostBytes = 256, 2 * maxFile
	return func(yield func([]change) bool) {
		first, total := 0, int64(0)
		for i, c := range changes {
			size := int64(0)
			for _, f := range []*env.FileInfo{c.before, c.after} {
				if f != nil {
					size += f.Size
				}
			}
			if i > first && (i-first == mostFiles || total+size > mostBytes) {
				if !yield(changes[first:i]) {
					return
				}
				first, total = i, 0
			}
			total += size
		}
		if first < len(changes) {
			yield(changes[first:])
		}
	}
}

// load calls read for each file, several at once. Each has its own error.
func load(files []loaded, read func(i int, l *loaded)) []loaded {
	var readers errgroup.Group
	readers.SetLimit(loadsAtOnce)
	for i := range files {
		readers.Go(func() error {
			read(i, &files[i])
			return nil
		})
	}
	_ = readers.Wait()
	return files
}

// isNew returns 1 for a new file and 0 otherwise, for sorting.
func (c change) isNew() int {
	if c.before == nil {
		return 1
	}
	return 0
}

// size returns how many bytes were read.
func (l *loaded) size() int {
	n := 0
	for _, s := range l.sides {
		if s != nil {
			n += len(s.data)
		}
	}
	return n
}

func tooLarge() string { return fmt.Sprintf("the patch would exceed %s", size(maxTotal)) }

// afford takes a file's size off the patch's remaining bytes, or returns the reason why it must be omitted.
func (d *differ) afford(l loaded) (omitted string) {
	if d.total+l.size() > maxTotal {
		return tooLarge()
	}
	d.total += l.size()
	return ""
}

// readAfter reads a changed file in the sandbox, or says why the patch omits it.
func (d *differ) readAfter(ctx context.Context, c change, l *loaded) {
	l.path = c.path
	if l.omitted = c.unfit(); l.omitted != "" || c.after == nil {
		return
	}
	if l.err = context.Cause(ctx); l.err != nil {
		return
	}
	if c.after.Kind == env.KindFile && c.after.Size > maxFile {
		l.omitted = fmt.Sprintf("it has %s; the limit for one file is %s", size(c.after.Size), size(maxFile))
		return
	}
	after, err := d.current(ctx, *c.after)
	switch {
	case err == nil:
		l.sides[1] = after
	case errors.Is(err, fs.ErrNotExist): // removed since the tree was listed
	case !errors.Is(err, errGrows) && env.IsInfrastructure(ctx, err):
		l.err = err
	default:
		l.omitted = "cannot be read: " + err.Error()
	}
}

// readBefore reads the original of a changed file.
func (d *differ) readBefore(ctx context.Context, c change, l *loaded) {
	if c.before == nil || l.omitted != "" || l.err != nil {
		return
	}
	data, err := d.base.original(ctx, *c.before)
	if err != nil {
		l.err = err
		return
	}
	l.sides[0] = &side{gitMode(*c.before), data}
}

// errGrows reports that a program in the sandbox still writes to a file.
var errGrows = errors.New("it kept growing while it was read")

// current reads a file's current content, without following a symbolic link that may have replaced it.
func (d *differ) current(ctx context.Context, f env.FileInfo) (*side, error) {
	if f.Kind == env.KindSymlink {
		return &side{gitMode(f), []byte(f.Target)}, nil
	}
	data, info, err := d.sb.Read(ctx, d.sb.Dir()+"/"+f.Path, env.ReadOptions{Limit: maxFile, NoFollow: true})
	if err != nil {
		return nil, err
	}
	if info.Size > int64(len(data)) {
		return nil, errGrows
	}
	return &side{gitMode(info), data}, nil
}
