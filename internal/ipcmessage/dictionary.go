package ipcmessage

// dictionary checks a batch of a dictionary.
func (c *Checker) dictionary(header table, body []byte) error {
	id, err := header.int64(0)
	if err != nil {
		return err
	}
	values, ok := c.plan.dictionaries[id]
	if !ok {
		return errMetadata("a dictionary %d that the schema does not have", id)
	}
	data, ok, err := header.table(1)
	if err != nil {
		return err
	}
	if !ok {
		return errMetadata("a dictionary without data")
	}
	delta, err := header.byte(2)
	if err != nil {
		return err
	}
	// arrow-go reads dictionaries as it did before version 5.
	if err := c.batch("DictionaryBatch", data, []shape{values}, 0, body); err != nil {
		return err
	}
	return c.grow(id, delta != 0, int64(len(body)))
}

// grow counts a dictionary, or a delta of it.
func (c *Checker) grow(id int64, delta bool, size int64) error {
	if c.dictionaries == nil {
		c.dictionaries = map[int64]int64{}
	}
	c.deltas = c.deltas || delta
	if delta {
		size += c.dictionaries[id]
	}
	c.dictionaries[id] = size
	total := int64(0)
	for _, n := range c.dictionaries {
		total += n
	}
	if total > c.max {
		return tooMuch("DictionaryBatch", "dictionaries of %d bytes with their deltas, of at most %d", total, c.max)
	}
	return nil
}
