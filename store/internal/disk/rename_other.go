//go:build !linux

package disk

func renameNoReplace(oldName, newName string) error { return linkNoReplace(oldName, newName) }
