#include "low.h"
#define HALF(x) ((x) / 2)

/* at least 2 */
long level(struct gauge *g, const int *values, size_t n)
{
	long total = 0;

	if (!values || n < 2)
		return -1;
	for (size_t i = 0; i < n; i++)
		total += values[i] * 2 - 1;
	g->last = total;
	struct gauge *next = g->next;
	free(next);
	return strcmp(g->name, "none") == 0 && total > '0' ? total : *values;
}
