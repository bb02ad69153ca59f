package acp

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ErrNoSession is the error of a session that does not exist.
var ErrNoSession error = &Error{codeNotFound, "there is no such session"}

// BadParams returns an error that blames the parameters of a request.
func BadParams(err error) error { return &Error{codeParams, err.Error()} }

// Host holds the sessions.
type Host interface {
	// Open begins a session in a folder, and returns its ID and what may be chosen in it.
	Open(ctx context.Context, cwd string) (string, []ConfigOption, error)
	// Prompt works on what the user says, and returns why the turn ended. Where ctx ends, it is Cancelled.
	Prompt(ctx context.Context, t *Turn, text string) (StopReason, error)
	// Replay resumes a session, which may be another process's, and reports what happened in it, if t is not nil. It
	// returns what may be chosen.
	Replay(ctx context.Context, id string, t *Turn) ([]ConfigOption, error)
	// List returns the sessions of a folder, or of all if it is empty, the newest first.
	List(ctx context.Context, cwd string) ([]Session, error)
}

// server answers a client.
type server struct {
	*conn
	host    Host
	version string

	mu     sync.Mutex
	client capabilities
	active map[string]activity       // turns that are going on, by session
	known  map[string][]ConfigOption // options of this process's sessions
}

// activity is a turn that is going on.
type activity struct {
	request string // its ID
	cancel  context.CancelFunc
}

// capabilities are what a client can do.
type capabilities struct {
	FS struct {
		Read  bool `json:"readTextFile"`
		Write bool `json:"writeTextFile"`
	} `json:"fs"`
}

// Serve answers a client until it is gone or ctx ends. Then it interrupts the running requests and waits for them.
// Nothing but messages is written to out.
func Serve(ctx context.Context, in io.Reader, out io.Writer, host Host, version string) error {
	s := &server{conn: newConn(in, out), host: host, version: version, active: map[string]activity{},
		known: map[string][]ConfigOption{}}
	ctx, cancel := context.WithCancel(ctx)
	var open sync.WaitGroup
	ended := make(chan error, 1)
	// A blocked read cannot be cancelled: if ctx ends first, this goroutine lasts as long as the process.
	go func() {
		ended <- s.read(func(m incoming) {
			if len(m.ID) == 0 {
				s.notified(m)
				return
			}
			turn, end := s.prepare(ctx, m)
			open.Go(func() {
				result, err := s.handle(turn, m)
				end() // before the answer, at which the client may send its next prompt
				s.answer(m.ID, result, err)
			})
		})
	}()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	cancel()
	open.Wait()
	return err
}

// prepare registers a prompt before the next message is read, so that a cancellation finds it. end ends its turn.
func (s *server) prepare(ctx context.Context, m incoming) (_ context.Context, end func()) {
	var p struct {
		Session string `json:"sessionId"`
	}
	if m.Method != "session/prompt" || json.Unmarshal(m.Params, &p) != nil {
		return ctx, func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active[p.Session].cancel != nil {
		return nil, func() {} // handle refuses it
	}
	ctx, cancel := context.WithCancel(ctx)
	s.active[p.Session] = activity{string(m.ID), cancel}
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		cancel()
		delete(s.active, p.Session)
	}
}

// notified handles a notification: it cancels the turn that is named by its session or by the ID of its request.
// Other notifications are ignored.
func (s *server) notified(m incoming) {
	var p struct {
		Session string          `json:"sessionId"`
		Request json.RawMessage `json:"requestId"`
	}
	if m.Method != "session/cancel" && m.Method != "$/cancel_request" || json.Unmarshal(m.Params, &p) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for session, turn := range s.active {
		if session == p.Session || turn.request == string(p.Request) {
			turn.cancel()
		}
	}
}

// params has the parameters of all kinds of requests.
type params struct {
	Session string            `json:"sessionId"`
	Cwd     string            `json:"cwd"`
	Servers []json.RawMessage `json:"mcpServers"`
	Prompt  []block           `json:"prompt"`
	Client  capabilities      `json:"clientCapabilities"`
	Option  string            `json:"configId"`
	Value   string            `json:"value"`
}

func (s *server) handle(ctx context.Context, m incoming) (any, error) {
	var p params
	if err := decode(m.Params, &p); err != nil {
		return nil, err
	}
	switch m.Method {
	case "initialize":
		s.mu.Lock()
		s.client = p.Client
		s.mu.Unlock()
		return s.hello(), nil
	case "session/new":
		return s.open(ctx, p)
	case "session/load", "session/resume":
		return s.load(ctx, p, m.Method == "session/load")
	case "session/set_config_option":
		return s.choose(p)
	case "session/list":
		all, err := s.host.List(ctx, p.Cwd)
		if all == nil {
			all = []Session{}
		}
		return map[string]any{"sessions": all}, err
	case "session/close":
		return nil, s.close(p.Session)
	case "session/prompt":
		return s.prompt(ctx, p)
	}
	return nil, &Error{codeMethod, "unknown method " + m.Method}
}

func (s *server) hello() any {
	type object map[string]any
	return object{
		"protocolVersion": protocolVersion,
		"agentInfo":       object{"name": "deepswe", "title": "deepswe", "version": s.version},
		"authMethods":     []string{},
		"agentCapabilities": object{
			"loadSession":         true,
			"promptCapabilities":  object{"embeddedContext": true},
			"sessionCapabilities": object{"list": object{}, "resume": object{}, "close": object{}},
		},
	}
}

func (s *server) open(ctx context.Context, p params) (any, error) {
	if !filepath.IsAbs(p.Cwd) {
		return nil, &Error{codeParams, "cwd must be an absolute path"}
	}
	id, options, err := s.host.Open(ctx, p.Cwd)
	if err != nil {
		return nil, err
	}
	s.remember(id, options)
	if len(p.Servers) > 0 {
		s.turn(id).Update(Message("MCP servers are not used: the agent works in a sandbox of its own."))
	}
	return map[string]any{"sessionId": id, "configOptions": options}, nil
}

func (s *server) load(ctx context.Context, p params, replay bool) (any, error) {
	var t *Turn
	if replay {
		t = s.turn(p.Session)
	}
	options, err := s.host.Replay(ctx, p.Session, t)
	if err != nil {
		return nil, err
	}
	s.remember(p.Session, options)
	return map[string]any{"configOptions": options}, nil
}

func (s *server) remember(session string, options []ConfigOption) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[session] = options
}

// close cancels the session's running turn, if there is one, and forgets the session.
func (s *server) close(session string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known[session]; !ok {
		return ErrNoSession
	}
	if turn := s.active[session]; turn.cancel != nil {
		turn.cancel()
	}
	delete(s.known, session)
	return nil
}

// choose sets an option of a session, and returns all of its options.
func (s *server) choose(p params) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	options, ok := s.known[p.Session]
	if !ok {
		return nil, ErrNoSession
	}
	options = slices.Clone(options) // an answer that is being written may hold the old slice
	for i, o := range options {
		if o.ID == p.Option && slices.ContainsFunc(o.Options, func(v ConfigValue) bool { return v.Value == p.Value }) {
			options[i].Current, s.known[p.Session] = p.Value, options
			return map[string]any{"configOptions": options}, nil
		}
	}
	return nil, &Error{codeParams, "there is no such choice"}
}

func (s *server) prompt(ctx context.Context, p params) (any, error) {
	s.mu.Lock()
	_, known := s.known[p.Session]
	s.mu.Unlock()
	switch {
	case !known:
		return nil, ErrNoSession
	case ctx == nil:
		return nil, &Error{codeInvalid, "the session is at work: cancel that first"}
	}
	text := strings.TrimSpace(textOf(p.Prompt))
	if text == "" {
		return nil, &Error{codeParams, "the prompt is empty"}
	}
	reason, err := s.host.Prompt(ctx, s.turn(p.Session), text)
	if ctx.Err() != nil {
		reason, err = Cancelled, nil
	}
	return map[string]StopReason{"stopReason": reason}, err
}

// textOf returns a prompt as text: linked files by their paths, embedded files with their content.
func textOf(prompt []block) string {
	var parts []string
	for _, b := range prompt {
		switch b.Type {
		case "text":
			parts = append(parts, b.Text)
		case "resource_link":
			parts = append(parts, strings.TrimPrefix(b.URI, "file://"))
		case "resource":
			parts = append(parts, "\n"+strings.TrimPrefix(b.Resource.URI, "file://")+":\n"+b.Resource.Text+"\n")
		}
	}
	return strings.Join(parts, " ")
}

// turn returns the Turn through which a host talks to the client about a session.
func (s *server) turn(session string) *Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Turn{Session: session, CanRead: s.client.FS.Read, CanWrite: s.client.FS.Write, options: s.known[session],
		conn: s.conn}
}

// Turn is a conversation with the client about one session.
type Turn struct {
	Session string
	// CanRead and CanWrite report whether the client can read and write files, including unsaved content.
	CanRead, CanWrite bool

	options []ConfigOption
	conn    *conn
}

// Chosen is the value of an option; empty where there is no such option.
func (t *Turn) Chosen(id string) string {
	i := slices.IndexFunc(t.options, func(o ConfigOption) bool { return o.ID == id })
	if i < 0 {
		return ""
	}
	return t.options[i].Current
}

// Update tells the client what has happened: a Chunk, a ToolCall, a PlanUpdate or a Usage.
func (t *Turn) Update(u any) {
	t.conn.notify("session/update", map[string]any{"sessionId": t.Session, "update": u})
}

// Ask asks the user about a call, and returns the ID of the chosen option; empty where none was chosen.
func (t *Turn) Ask(ctx context.Context, c ToolCall, options ...Option) (string, error) {
	var answer struct {
		Outcome struct {
			Outcome string `json:"outcome"`
			Option  string `json:"optionId"`
		} `json:"outcome"`
	}
	err := t.conn.call(ctx, "session/request_permission", map[string]any{
		"sessionId": t.Session, "toolCall": c, "options": options}, &answer)
	if err != nil || answer.Outcome.Outcome != "selected" {
		return "", err
	}
	return answer.Outcome.Option, nil
}

// ReadFile reads a file as the client has it.
func (t *Turn) ReadFile(ctx context.Context, path string) (string, error) {
	var answer struct {
		Content string `json:"content"`
	}
	err := t.conn.call(ctx, "fs/read_text_file", map[string]string{"sessionId": t.Session, "path": path}, &answer)
	return answer.Content, err
}

// WriteFile lets the client write a file.
func (t *Turn) WriteFile(ctx context.Context, path, text string) error {
	return t.conn.call(ctx, "fs/write_text_file", map[string]string{"sessionId": t.Session, "path": path, "content": text},
		nil)
}
