package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"deepswe/agent/llm"
	"deepswe/env"
)

// ModelServer is a server of models: one on this machine, or one that the user has named.
type ModelServer struct {
	// Name is the product that uses the port by default, or that the server says it is.
	Name    string
	BaseURL string
	Models  []llm.ServedModel
	// Source is the variable or the file that names it; empty for a usual port.
	Source string
	// Problem is why a server that was named has no models.
	Problem error
}

// nearby returns the addresses to look at: those where servers of models listen by default.
func nearby() []ModelServer {
	var all []ModelServer
	for _, s := range [][2]string{
		{llm.VLLM, "8000"}, {llm.SGLang, "30000"}, {llm.LlamaCpp, "8080"}, {llm.Ollama, "11434"}, {llm.LMStudio, "1234"},
		{"LiteLLM", "4000"},
	} {
		all = append(all, ModelServer{Name: s[0], BaseURL: "http://" + net.JoinHostPort("127.0.0.1", s[1]) + "/v1"})
	}
	return all
}

const (
	// longestLook bounds the look at one port of this machine, longestList that at a server which the user has named.
	longestLook = 300 * time.Millisecond
	longestList = time.Second
	// mostMeasured is how many models of a server are asked about.
	mostMeasured = 8
)

// named are the servers that the environment and the configuration name, in the order in which they are chosen.
func (w World) named(c Config) []ModelServer {
	var all []ModelServer
	for _, s := range []ModelServer{
		{Source: "DEEPSWE_BASE_URL", BaseURL: w.Getenv("DEEPSWE_BASE_URL")},
		{Source: "OPENAI_BASE_URL", BaseURL: w.Getenv("OPENAI_BASE_URL")},
		{Source: w.ConfigPath(), BaseURL: c.BaseURL},
		{Source: "OLLAMA_HOST", Name: llm.Ollama, BaseURL: hostAddress(w.Getenv("OLLAMA_HOST"), "11434")},
		{Source: "LMSTUDIO_BASE_URL", Name: llm.LMStudio, BaseURL: hostAddress(w.Getenv("LMSTUDIO_BASE_URL"), "1234")},
	} {
		if s.BaseURL != "" && !slices.ContainsFunc(all, s.same) {
			all = append(all, s)
		}
	}
	return all
}

// hostAddress completes what servers' own variables hold: a host without scheme or port, or an address to listen on.
func hostAddress(value, port string) string {
	if value == "" {
		return ""
	}
	if !strings.Contains(value, "://") {
		value = "http://" + value
	}
	u, err := url.Parse(value)
	if err != nil {
		return ""
	}
	host := u.Hostname()
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if u.Port() != "" || u.Scheme == "http" {
		host = net.JoinHostPort(host, cmp.Or(u.Port(), port))
	}
	return u.Scheme + "://" + host + "/v1"
}

// Servers returns the servers of models that the user has named, followed by those that listen at their usual ports
// of this machine. It takes about a second. The user's key is sent only to servers that get it anyway; no other host
// is asked.
func (w World) Servers(ctx context.Context, c Config) []ModelServer {
	named := w.named(c)
	places := slices.DeleteFunc(nearby(), func(place ModelServer) bool {
		return slices.ContainsFunc(named, place.same)
	})
	var looking sync.WaitGroup
	looking.Go(func() { places = answering(ctx, places) })
	for i := range named {
		looking.Go(func() {
			key := ""
			if named[i].Name == "" { // variables of other programs come without a key
				key = cmp.Or(w.Getenv("OPENAI_API_KEY"), c.APIKey)
			}
			named[i].List(ctx, key)
		})
	}
	looking.Wait()
	return append(named, places...)
}

// same reports whether two servers are the same; localhost and 127.0.0.1 are equal.
func (s ModelServer) same(other ModelServer) bool {
	plain := func(address string) string {
		address = strings.TrimRight(strings.TrimSuffix(strings.TrimRight(address, "/"), "/v1"), "/")
		return strings.Replace(address, "://localhost:", "://127.0.0.1:", 1)
	}
	return plain(s.BaseURL) == plain(other.BaseURL)
}

// List asks a server that the user has named for its models, with a key if it is not empty.
func (s *ModelServer) List(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, longestList)
	defer cancel()
	client, err := llm.New(llm.Options{BaseURL: s.BaseURL, APIKey: key, MaxRetries: -1})
	if err == nil {
		s.Models, err = client.Models(ctx)
	}
	if s.Problem = err; err == nil && len(s.Models) == 0 {
		s.Problem = errNoModels
	}
	s.measure(ctx, client)
}

// measure asks for the context that the first models have.
func (s *ModelServer) measure(ctx context.Context, client *llm.Client) {
	var measuring sync.WaitGroup
	for i := range s.Models[:min(len(s.Models), mostMeasured)] {
		s.Name = cmp.Or(s.Models[i].Server(), s.Name)
		measuring.Go(func() { client.Measure(ctx, &s.Models[i]) })
	}
	measuring.Wait()
}

// errNoModels says that what listens does not serve models: many programs use the same ports.
var errNoModels = errors.New("it lists no models")

// direct returns a transport that uses no proxy, because a proxy would be another host.
func direct() http.RoundTripper { return &http.Transport{DisableKeepAlives: true} }

// answering asks servers about their models, and returns those that answer, in their order. None gets a key.
func answering(ctx context.Context, places []ModelServer) []ModelServer {
	var asking sync.WaitGroup
	for i := range places {
		asking.Go(func() {
			client, err := llm.New(llm.Options{BaseURL: places[i].BaseURL, MaxRetries: -1, Transport: direct()})
			if err != nil || places[i].askList(ctx) != nil {
				places[i].Models = nil
			}
			places[i].measure(ctx, client)
		})
	}
	asking.Wait()
	return slices.DeleteFunc(places, func(s ModelServer) bool { return len(s.Models) == 0 })
}

// askList reads the list of models of whatever listens at the address.
func (s *ModelServer) askList(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.BaseURL+"/models", http.NoBody)
	if err != nil {
		return err
	}
	client := http.Client{
		Transport:     direct(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var kind struct {
		Object string `json:"object"`
	}
	raw, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(raw, &kind) != nil || kind.Object != "list" {
		return cmp.Or(err, errNoModels)
	}
	if s.Models, err = llm.ReadModels(raw); err != nil {
		return err
	}
	s.Models = slices.DeleteFunc(s.Models, func(m llm.ServedModel) bool { return m.ID == "" })
	return nil
}

// Nearby says which servers of models listen on this machine, and the command that helps. No other host is asked.
func Nearby(ctx context.Context) (what, command string) { return advise(answering(ctx, nearby())) }

func advise(found []ModelServer) (what, command string) {
	if len(found) == 0 {
		return "and none of vLLM, SGLang, llama.cpp, Ollama, LM Studio and LiteLLM answers at its usual port of this machine",
			"start one of them, or: export DEEPSWE_BASE_URL=http://HOST:PORT/v1"
	}
	var all []string
	for _, s := range found {
		var names []string
		for _, m := range s.Models {
			names = append(names, m.ID)
		}
		all = append(all, fmt.Sprintf("%s answers at %s (%s)", s.Name, s.BaseURL, Plain(SomeOf(names, len(names)))))
	}
	command = "export DEEPSWE_BASE_URL=" + found[0].BaseURL
	if len(found[0].Models) > 1 {
		command += " DEEPSWE_MODEL=" + env.ShellQuote(Plain(found[0].Models[0].ID))
	}
	return strings.Join(all, "\n"), command
}

// explained adds what was found nearby to the error of an endpoint at which nothing listens.
func explained(ctx context.Context, err error) error {
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	what, command := Nearby(ctx)
	return fmt.Errorf("%w\n%s\nto fix: %s", err, what, command)
}
