package tinker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"deepswe/agent/llm"
	"deepswe/env/disk"
)

// replicasOf returns the servers at the given addresses, each once.
func (a *adapters) replicasOf(urls []string) (all []*replica, err error) {
	for i, url := range urls {
		s, err := newReplica(url, a.key)
		if err != nil {
			return nil, fmt.Errorf("number %d: %w", i+1, err)
		}
		if !slices.ContainsFunc(all, func(other *replica) bool { return other.url == s.url }) {
			all = append(all, s)
		}
	}
	return all, nil
}

// follow applies changes of the file with the endpoints until close. A file that cannot be read changes nothing.
func (a *adapters) follow() {
	apply := func(urls []string) error {
		named, err := a.replicasOf(urls)
		if err == nil {
			a.enlist(named)
		}
		return err
	}
	disk.FollowList(a.life, a.file, a.probing/2, nil, apply, func(err error) {
		a.client.log.Warn("the samplers stay as they are", "file", a.file, "error", err)
	})
}

// enlist makes the named servers those that sample. Turns under way on other servers finish there.
func (a *adapters) enlist(named []*replica) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all, fresh []*replica
	for _, s := range named {
		if i := slices.IndexFunc(a.replicas, func(other *replica) bool { return other.url == s.url }); i >= 0 {
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
		Like:       s.latest,
	})
	v.models[s], s.latest = c, c
	return c, err
}

// checkExtends returns an error if the servers write prompts and their template cannot be extended behind a reply: then
// no rollout could have a second turn, on any server. What else a server answers is met when it samples.
func (a *adapters) checkExtends(ctx context.Context, v *adapter) error {
	a.mu.Lock()
	servers, first := a.having(v), a.current == nil
	a.mu.Unlock()
	if a.codec != nil || !first || len(servers) == 0 {
		return nil
	}
	model, err := v.client(servers[0])
	if err != nil {
		return err
	}
	err = model.CheckExtends(ctx)
	if !errors.Is(err, llm.ErrNoExtension) {
		return nil
	}
	if failed, ok := errors.AsType[*llm.Error](err); ok {
		failed.Hint = "set trainer.template to auto, and trainer.tokenizer to a folder with the model's tokenizer and chat " +
			"template, which are then used here instead of the samplers'"
	}
	return err
}
