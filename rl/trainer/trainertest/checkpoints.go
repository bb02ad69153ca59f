package trainertest

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func (s *Server) write(m *model, f *future) (any, error) {
	address := "tinker://" + f.model + "/weights/" + f.body.Path
	if err := m.policy.Save(context.Background(), fileName(address)); err != nil {
		return nil, err
	}
	s.saved[address] = checkpoint{kind: "training", rank: m.rank}
	if err := s.remember(); err != nil {
		return nil, err
	}
	return map[string]any{"path": address, "type": f.operation}, nil
}

func (s *Server) publish(m *model, f *future) (any, error) {
	policy, err := m.policy.Publish(context.Background())
	if err != nil {
		return nil, err
	}
	session := samplingSession{model: f.model, policy: policy}
	if _, ok := s.takeFault(stale); ok {
		session.policy, session.stale = s.samplers[m.loaded].policy, true
		policy = m.exported
	}
	address := "tinker://" + f.model + "/sampler_weights/" + f.body.Path
	s.saved[address] = checkpoint{kind: "sampler", rank: m.rank, policy: policy, owner: m}
	if f.body.SamplingNumber == nil {
		m.exported, s.exports[address] = policy, s.saved[address]
		return map[string]any{"path": "tinker://" + f.model + "/" + f.body.Path, "type": f.operation,
			"sampling_session_id": nil}, nil
	}
	if s.options.LoRASync != "" {
		s.exports[address] = s.saved[address]
		if err := s.writeAdapter(filepath.Join(s.options.LoRASync, f.model), address); err != nil {
			return nil, err
		}
	}
	id := s.id("sampling")
	if _, ok := s.takeFault(idle + f.operation); ok {
		id = m.loaded
	} else {
		s.samplers[id], s.latest = session, id
	}
	return map[string]any{"path": nil, "type": f.operation, "sampling_session_id": id}, nil
}

// memory is what the next server with the same Options.Dir knows of the ones before it, as from a database.
type memory struct {
	Made, Futures    int // ids, and numbers of futures that were not to be used again
	Sessions, Models []string
	Ranks            map[string]int // of checkpoints for training, by address
}

func (s *Server) memoryFile() string { return filepath.Join(s.dir, "memory.json") }

// remember writes the memory. The caller holds s.mu.
func (s *Server) remember() error {
	const ahead = 1000 // so that not each future is written
	m := memory{Made: s.made, Futures: s.before + len(s.futures) + ahead, Ranks: map[string]int{},
		Sessions: slices.Sorted(maps.Keys(s.sessions)), Models: slices.Sorted(maps.Keys(s.created))}
	for address, k := range s.saved {
		if k.kind == "training" {
			m.Ranks[address] = k.rank
		}
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	s.remembered = m.Futures
	return os.WriteFile(s.memoryFile(), data, 0o600)
}

// recall reads the memory, if there is one. Models are known, and not loaded.
func (s *Server) recall() error {
	data, err := os.ReadFile(s.memoryFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var m memory
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	s.made, s.before = m.Made, m.Futures
	for _, id := range m.Sessions {
		s.sessions[id] = &session{}
	}
	for _, id := range m.Models {
		s.created[id] = true
	}
	for address, rank := range m.Ranks {
		s.saved[address] = checkpoint{kind: "training", rank: rank}
	}
	return nil
}

// fileName is the policy's name for a checkpoint.
func fileName(address string) string {
	return strings.NewReplacer("tinker://", "", "/", "-").Replace(address)
}
