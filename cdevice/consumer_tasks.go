package cdevice

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// readyTask is a task that has arrived. It is extracted exactly once.
type readyTask struct {
	task     abi.ArrowAsyncTask
	metadata arrow.Metadata
}

// taskQueue holds the tasks that are ready, in the order of their arrival. Once it has held as many
// tasks as it ever does, it allocates no memory.
type taskQueue struct {
	tasks []readyTask
	taken int // the number of tasks at the beginning that were taken
}

func (q *taskQueue) size() int { return len(q.tasks) - q.taken }

func (q *taskQueue) push(t readyTask) {
	// Moving the tasks when at least half of the places are free costs one move per task.
	if len(q.tasks) == cap(q.tasks) && 2*q.taken >= len(q.tasks) {
		left := copy(q.tasks, q.tasks[q.taken:])
		clear(q.tasks[left:]) // metadata that is no longer needed
		q.tasks, q.taken = q.tasks[:left], 0
	}
	q.tasks = append(q.tasks, t)
}

// pop takes the first task. There must be one.
func (q *taskQueue) pop() readyTask {
	t := q.tasks[q.taken]
	q.tasks[q.taken] = readyTask{}
	q.taken++
	return t
}

// popAll takes all tasks.
func (q *taskQueue) popAll() []readyTask {
	all := q.tasks[q.taken:]
	*q = taskQueue{}
	return all
}
