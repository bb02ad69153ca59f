package tinker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"deepswe/env/disk"
	"deepswe/rl"
	"deepswe/rl/weights"
)

// checkpoint is the local part of a checkpoint: the address of the weights on the server, and what else is needed to
// resume.
type checkpoint struct {
	// Address is the server's address of weights and optimizer.
	Address string `json:"address"`
	Base    string `json:"base_model"`
	Rank    int    `json:"lora_rank"`
	Version int64  `json:"version"`
	// Moved is set if the weights had changed since they were published as Version.
	Moved bool `json:"moved,omitempty"`
}

// Save saves weights and optimizer on the server, under a unique name, and their address in Dir.
func (t *Trainer) Save(ctx context.Context, name string) error {
	path, err := t.path(name)
	if err != nil {
		return err
	}
	if len(t.pending) > 0 {
		return errors.New("save: a part of an update waits for Step")
	}
	if err := t.ready(ctx); err != nil {
		return err
	}
	address, err := t.model.save(ctx, name+"-"+nonce())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(t.options.Dir, 0o755); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	return disk.WriteJSON(path, checkpoint{
		Address: address, Base: t.options.Model.Base, Rank: t.options.Model.Rank, Version: t.version, Moved: t.moved,
	})
}

// loads is how often to try to load a checkpoint into a new model if the server stops answering.
const loads = 3

// Load restores what Save saved. It creates a new model, because servers load checkpoints only into models that have
// not been used.
func (t *Trainer) Load(ctx context.Context, name string) error {
	path, err := t.path(name)
	if err != nil {
		return err
	}
	var k checkpoint
	if err := disk.ReadJSON(path, &k); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if k.Base != t.options.Model.Base || k.Rank != t.options.Model.Rank {
		return fmt.Errorf("load %s: it is of %s with rank %d, and the trainer has %s with rank %d", name, k.Base, k.Rank,
			t.options.Model.Base, t.options.Model.Rank)
	}
	if err := t.gate.shut(ctx); err != nil {
		return err
	}
	for n := 1; ; n++ {
		if err = t.restore(ctx, k.Address, true); err == nil || n == loads || !errors.Is(err, rl.ErrTrainerLost) {
			break
		}
	}
	if errors.Is(err, ErrUnknown) {
		return fmt.Errorf("load %s: the server no longer has the checkpoint %s; to fix: start it with the database and the "+
			"checkpoints that it had: %w", name, k.Address, err)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", name, err)
	}
	t.version, t.moved, t.policy, t.pending, t.broken = k.Version, k.Moved, nil, nil, false
	return nil
}

// Saved returns the server's address of a checkpoint that a trainer has saved in dir.
func Saved(dir, name string) (string, error) {
	var k checkpoint
	err := disk.ReadJSON(filepath.Join(dir, name+".json"), &k)
	return k.Address, err
}

// DownloadAdapter downloads the adapter of a checkpoint that a trainer has saved in dir into the new directory out. It
// loads the checkpoint into a model of its own, because servers hand out only what was saved for sampling.
func DownloadAdapter(ctx context.Context, c *Client, dir, name, out string) error {
	return fromCheckpoint(ctx, c, dir, name, func(m *Model) error {
		return m.takeAdapter(ctx, 1, out)
	})
}

// DownloadModel is DownloadAdapter for all weights, with the card for the model's page.
func DownloadModel(ctx context.Context, c *Client, dir, name, out string, card weights.Card) error {
	return fromCheckpoint(ctx, c, dir, name, func(m *Model) error {
		return m.take(ctx, 1, modelTo(out, card))
	})
}

// fromCheckpoint calls take with a model that has a checkpoint's weights.
func fromCheckpoint(ctx context.Context, c *Client, dir, name string, take func(*Model) error) error {
	var k checkpoint
	if err := disk.ReadJSON(filepath.Join(dir, name+".json"), &k); err != nil {
		return fmt.Errorf("checkpoint %s: %w", name, err)
	}
	m, err := c.Create(ctx, ModelOptions{Base: k.Base, Rank: k.Rank})
	if err != nil {
		return err
	}
	defer m.Close(modelTimeout)
	if err := m.load(ctx, k.Address, false); err != nil {
		return fmt.Errorf("checkpoint %s: %w", name, err)
	}
	return take(m)
}

// restore replaces the model by a new one with a checkpoint's weights.
func (t *Trainer) restore(ctx context.Context, address string, optimizer bool) error {
	if t.model != nil {
		t.model.Close(modelTimeout)
		t.model = nil
	}
	m, err := t.create(ctx)
	if err != nil {
		return err
	}
	if err := m.load(ctx, address, optimizer); err != nil {
		m.Close(modelTimeout)
		return err
	}
	t.model = m
	return nil
}

// Remove deletes a checkpoint, also on the server if the server supports that.
func (t *Trainer) Remove(ctx context.Context, name string) error {
	path, err := t.path(name)
	if err != nil {
		return err
	}
	var k checkpoint
	err = disk.ReadJSON(path, &k)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = t.client.Remove(ctx, k.Address)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return os.Remove(path)
}

func (t *Trainer) path(name string) (string, error) {
	if t.options.Dir == "" {
		return "", errors.New("the trainer has no directory for checkpoints")
	}
	if name == "" || strings.Trim(name, nameCharacters) != "" || len(name) > 200 {
		return "", fmt.Errorf("checkpoint name %q: want letters, digits, - and _", name)
	}
	return filepath.Join(t.options.Dir, name+".json"), nil
}

// nameCharacters are the characters that servers accept in the name of a checkpoint.
const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// nonce returns a random name, so that the names of runs on one server differ.
func nonce() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
