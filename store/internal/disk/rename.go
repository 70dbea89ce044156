package disk

import "os"

// linkNoReplace is a rename that fails when newName exists, in two steps. When
// the second fails the file has both names.
func linkNoReplace(oldName, newName string) error {
	if err := os.Link(oldName, newName); err != nil {
		return err
	}
	return os.Remove(oldName)
}
