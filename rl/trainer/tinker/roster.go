package tinker

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"deepswe/agent/llm"
)

// readRoster reads the endpoints in a file, one per line. Empty lines and lines that begin with # are ignored.
func readRoster(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("samplers: %w", err)
	}
	var urls []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			urls = append(urls, line)
		}
	}
	if len(urls) == 0 {
		return nil, fmt.Errorf("samplers: %s names no endpoint", file)
	}
	return urls, nil
}

// follow applies changes of the file with the endpoints until close. A file that cannot be read changes nothing.
func (a *adapters) follow() {
	var said string
	for {
		select {
		case <-a.life.Done():
			return
		case <-time.After(a.probing / 2):
		}
		urls, err := readRoster(a.file)
		var named []*replica
		for _, url := range urls {
			s, invalid := newReplica(url, a.key)
			if invalid != nil {
				err = fmt.Errorf("samplers: %s: %q: %w", a.file, url, invalid)
				break
			}
			named = append(named, s)
		}
		if err != nil {
			if err.Error() != said {
				a.client.log.Warn("the samplers stay as they are", "error", err)
			}
			said = err.Error()
			continue
		}
		said = ""
		a.enlist(named)
	}
}

// enlist makes the named servers those that sample. Turns under way on other servers finish there.
func (a *adapters) enlist(named []*replica) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all, fresh []*replica
	for _, s := range named {
		same := func(other *replica) bool { return other.url == s.url }
		if slices.ContainsFunc(all, same) {
			continue
		}
		if i := slices.IndexFunc(a.replicas, same); i >= 0 {
			s = a.replicas[i]
		} else {
			fresh = append(fresh, s)
		}
		all = append(all, s)
	}
	for _, s := range a.replicas {
		if !slices.Contains(all, s) {
			a.client.log.Info("a sampler is no longer named", "sampler", s.url)
			s.left = true
			maps.DeleteFunc(a.homes, func(_ string, home *replica) bool { return home == s })
		}
	}
	a.replicas = all
	for _, s := range fresh {
		a.client.log.Info("a sampler joins", "sampler", s.url)
		a.begin(s)
		a.tending.Go(func() { a.tend(a.life, s) })
	}
	a.broadcast()
}

// dismiss unloads the adapters of a server that is no longer named. It does nothing if the server has been named
// again.
func (a *adapters) dismiss(ctx context.Context, s *replica) {
	a.mu.Lock()
	again := slices.ContainsFunc(a.replicas, func(other *replica) bool { return other.url == s.url })
	a.mu.Unlock()
	if again {
		return
	}
	names, err := a.list(ctx, s)
	for _, name := range names {
		err = s.unload(ctx, name)
	}
	if err != nil {
		a.client.log.Debug("adapters not unloaded", "sampler", s.url, "error", err)
	}
}

// client returns the client for a version on a server.
func (v *adapter) client(s *replica) (*llm.Client, error) {
	a := v.of
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := v.models[s]; c != nil {
		return c, nil
	}
	c, err := llm.New(llm.Options{
		BaseURL: s.url, APIKey: s.key, Model: v.name, Continue: llm.Extend, Codec: a.codec, Log: a.client.log,
		MaxRetries: 2, // another server can go on
	})
	v.models[s] = c
	return c, err
}
