package gitrepo

import "fmt"

// Tip returns the hash of the commit that HEAD is at, "" when there is none.
func (r *Repo) Tip() (string, error) {
	t, err := r.readTip()
	if err != nil || t.commit == nil {
		return "", err
	}
	return t.hash.String(), nil
}

// Message returns the whole message of a commit (full hash). ErrNotFound.
func (r *Repo) Message(hash string) (string, error) {
	h, ok := parseHash(hash)
	if !ok {
		return "", fmt.Errorf("commit %q: %w", hash, ErrNotFound)
	}
	c, err := r.objects.commit(h)
	if err != nil {
		return "", err
	}
	return c.Message, nil
}
