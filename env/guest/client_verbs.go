package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Defaults of the options.
const (
	defaultCapture = 64 << 10
	defaultGrace   = 2 * time.Second
	defaultRead    = 64 << 20
	defaultList    = 10_000
	defaultMatches = 1_000
	defaultLine    = 400
	defaultTree    = 1_000_000
	// mostCapture limits Head and Tail, which guest and client hold in memory.
	mostCapture = 256 << 20
)

var errUnrequested = errors.New("the guest sends more than was asked for")

// positive returns value if it is positive, and otherwise the default.
func positive[T int | int64 | time.Duration](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// Ping returns nil if the guest answers.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.do(ctx, request{name: "ping", verb: verbPing, args: &PingCall{}, reply: nothing{}})
	return err
}

// Tidy prepares for [Client.Close]: it ends everything that commands have started, and flattens deep directories,
// because a container runtime keeps a file open for each level when it removes them. Running commands get no result,
// and fail when the client is closed.
func (c *Client) Tidy(ctx context.Context) error {
	_, err := c.do(ctx, request{name: "tidy", verb: verbTidy, args: &TidyCall{}, reply: nothing{}})
	return err
}

// Run executes a command line in a fresh shell as the command user. When ctx ends, the command's processes are
// killed, and Run returns ctx's error with the partial result, marked Cancelled.
func (c *Client) Run(ctx context.Context, cmd Command) (Result, error) {
	return c.run(ctx, "run", RunCall{Command: cmd})
}

// Prepare is Run as the guest's own user and with its privileges: for a provider's setup before anything else uses
// the sandbox.
func (c *Client) Prepare(ctx context.Context, cmd Command) (Result, error) {
	return c.run(ctx, "prepare", RunCall{Command: cmd, AsGuest: true})
}

func (c *Client) run(ctx context.Context, name string, cmd RunCall) (Result, error) {
	if cmd.Head == 0 && cmd.Tail == 0 {
		cmd.Head, cmd.Tail = defaultCapture, defaultCapture
	}
	cmd.Head, cmd.Tail = min(max(cmd.Head, 0), mostCapture), min(max(cmd.Tail, 0), mostCapture)
	cmd.Grace = positive(cmd.Grace, defaultGrace)
	cmd.HasStdin = len(cmd.Stdin) > 0
	var captured []byte
	var reply runReply
	most := 2 * (cmd.Head + cmd.Tail)
	var stdin io.Reader
	if cmd.HasStdin {
		stdin = bytes.NewReader(cmd.Stdin)
	}
	ok, err := c.do(ctx, request{
		name: name, verb: verbRun, args: &cmd, reply: &reply, body: stdin, grace: cmd.Grace,
		data: func(p []byte) error {
			if len(captured)+len(p) > most {
				return errUnrequested
			}
			captured = append(captured, p...)
			return nil
		},
	})
	if !ok {
		return Result{Cancelled: ctx.Err() != nil}, err
	}
	whole := true
	take := func(size int) (part []byte) {
		if whole = whole && size >= 0 && size <= len(captured); whole {
			part, captured = captured[:size:size], captured[size:]
		}
		return part
	}
	result := reply.Result
	result.Stdout = Output{Head: take(reply.stdout.head), Tail: take(reply.stdout.tail), Size: reply.stdout.size}
	result.Stderr = Output{Head: take(reply.stderr.head), Tail: take(reply.stderr.tail), Size: reply.stderr.size}
	if !whole {
		c.fail(fmt.Errorf("%w: output is missing", errFrame))
		return Result{}, c.lost(name)
	}
	return result, err
}

// Read returns the content of a regular file, or the part of it that o selects, and its description;
// FileInfo.Version covers the whole file.
func (c *Client) Read(ctx context.Context, path string, o ReadOptions) ([]byte, FileInfo, error) {
	o.Limit = positive(o.Limit, defaultRead)
	var data []byte
	var info FileInfo
	_, err := c.do(ctx, request{
		name: "read", verb: verbRead, args: &ReadCall{path, o}, reply: &info,
		data: func(p []byte) error {
			if int64(len(data)+len(p)) > o.Limit {
				return errUnrequested
			}
			data = append(data, p...)
			return nil
		},
	})
	if err != nil {
		return nil, FileInfo{}, err
	}
	return data, info, nil
}

// Write creates or replaces a regular file atomically, and returns its new description.
func (c *Client) Write(ctx context.Context, path string, data []byte, o WriteOptions) (FileInfo, error) {
	var info FileInfo
	_, err := c.do(ctx, request{
		name: "write", verb: verbWrite, args: &WriteCall{path, o}, reply: &info, body: bytes.NewReader(data),
	})
	return info, err
}

// List returns a directory's entries.
func (c *Client) List(ctx context.Context, path string, o ListOptions) (Listing, error) {
	o.Limit = positive(o.Limit, defaultList)
	var l Listing
	_, err := c.do(ctx, request{
		name: "list", verb: verbList, args: &ListCall{path, o}, reply: &l, data: collect(&l.Entries, o.Limit),
	})
	if err != nil {
		return Listing{}, err
	}
	return l, nil
}

// Search returns the lines that contain the query's text.
func (c *Client) Search(ctx context.Context, q Query) (Matches, error) {
	q.MaxMatches = positive(q.MaxMatches, defaultMatches)
	q.MaxLine = min(positive(q.MaxLine, defaultLine), chunk)
	var m Matches
	_, err := c.do(ctx, request{
		name: "search", verb: verbSearch, args: &q, reply: &m, data: collect(&m.Matches, q.MaxMatches),
	})
	if err != nil {
		return Matches{}, err
	}
	return m, nil
}

// Tree describes every file below root, but no directories, sorted by path.
func (c *Client) Tree(ctx context.Context, root string, o TreeOptions) ([]FileInfo, error) {
	o.Limit = positive(o.Limit, defaultTree)
	var files []FileInfo
	_, err := c.do(ctx, request{
		name: "tree", verb: verbTree, args: &TreeCall{root, o}, reply: nothing{}, data: collect(&files, o.Limit),
	})
	if err != nil {
		return nil, err
	}
	return files, nil
}

// Remember gives the guest the versions of files below root, so that the next Tree with that root need not read those
// that still have the same size and modification time. Nothing but the host may have run in the sandbox since it put
// them there.
func (c *Client) Remember(ctx context.Context, root string, files []KnownFile) error {
	_, err := c.do(ctx, request{
		name: "remember", verb: verbRemember, args: &RememberCall{root}, reply: nothing{}, body: &list{files: files},
	})
	return err
}

// Unpack extracts a tar stream below dir. It reads the stream on the caller's goroutine, so a Read that blocks
// delays cancellation.
func (c *Client) Unpack(ctx context.Context, dir string, tar io.Reader) error {
	_, err := c.do(ctx, request{name: "unpack", verb: verbUnpack, args: &UnpackCall{dir}, reply: nothing{}, body: tar})
	return err
}

// collect decodes batches of messages into a list of up to limit items.
func collect[T any, M interface {
	*T
	Message
}](list *[]T, limit int) func([]byte) error {
	return func(payload []byte) error {
		c := coder{buf: payload, reading: true}
		for len(c.buf) > 0 {
			var item T
			M(&item).code(&c)
			if c.failed {
				return errFrame
			}
			if len(*list) == limit {
				return errUnrequested
			}
			*list = append(*list, item)
		}
		return nil
	}
}
