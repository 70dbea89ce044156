// Package nodefile turns history files into graph nodes and messages, and back.
//
// A history file holds one message node as a JSON object (reference 2.5). Parse
// reads what the graph needs of it in one pass and decodes nothing else: it
// runs over every file of a session when the session is opened. Text and
// ToMessage read the content when somebody asks for it. Spec is a node that is
// about to be written for the first time; SetOutput changes a file that exists
// and leaves every byte that it does not mean to change.
//
// Nothing here touches the disk, takes a lock or reads a clock.
package nodefile
