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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"deepswe/env"
)

// ModelServer is a server of models on this machine.
type ModelServer struct {
	// Name is the product that uses the port by default, or that the server says it is.
	Name    string
	BaseURL string
	Models  []string
}

// nearby are the places that are looked at: where servers of models listen by default.
func nearby() []ModelServer {
	var all []ModelServer
	for _, s := range [][2]string{
		{"vLLM", "8000"}, {"SGLang", "30000"}, {"llama.cpp", "8080"}, {"Ollama", "11434"}, {"LM Studio", "1234"},
		{"LiteLLM", "4000"},
	} {
		all = append(all, ModelServer{Name: s[0], BaseURL: "http://" + net.JoinHostPort("127.0.0.1", s[1]) + "/v1"})
	}
	return all
}

// longestLook bounds the look at one port of this machine.
const longestLook = 300 * time.Millisecond

// answering asks servers which models they serve, and returns those that answer, in their order. None gets a key.
func answering(ctx context.Context, places []ModelServer) []ModelServer {
	var asking sync.WaitGroup
	for i := range places {
		asking.Go(func() {
			if places[i].ask(ctx) != nil {
				places[i].Models = nil
			}
		})
	}
	asking.Wait()
	return slices.DeleteFunc(places, func(s ModelServer) bool { return len(s.Models) == 0 })
}

// owners are the products that say who they are in their list of models.
var owners = map[string]string{"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "library": "Ollama"}

// errNoModels says that what listens is no server of models: many programs use the same ports.
var errNoModels = errors.New("it lists no models")

// ask reads the server's list of models.
func (s *ModelServer) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.BaseURL+"/models", http.NoBody)
	if err != nil {
		return err
	}
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true}, // and no proxy, which is another host
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var list struct {
		Object string `json:"object"`
		Data   []struct {
			ID    string `json:"id"`
			Owner string `json:"owned_by"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&list); err != nil {
		return err
	}
	for _, m := range list.Data {
		if m.ID != "" {
			s.Models, s.Name = append(s.Models, m.ID), cmp.Or(owners[m.Owner], s.Name)
		}
	}
	if answer.StatusCode != http.StatusOK || list.Object != "list" || len(s.Models) == 0 {
		return errNoModels
	}
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
		const most = 3
		models := strings.Join(s.Models[:min(most, len(s.Models))], ", ")
		if more := len(s.Models) - most; more > 0 {
			models += fmt.Sprintf(" and %d more", more)
		}
		all = append(all, fmt.Sprintf("%s answers at %s (%s)", s.Name, s.BaseURL, Plain(models)))
	}
	command = "export DEEPSWE_BASE_URL=" + found[0].BaseURL
	if len(found[0].Models) > 1 {
		command += " DEEPSWE_MODEL=" + env.ShellQuote(Plain(found[0].Models[0]))
	}
	return strings.Join(all, "\n"), command
}

// explained adds to the error of an endpoint at which nothing listens what was found instead.
func explained(ctx context.Context, err error) error {
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	what, command := Nearby(ctx)
	return fmt.Errorf("%w\n%s\nto fix: %s", err, what, command)
}
