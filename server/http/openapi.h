/* The OpenAPI 3.1 document, written from the routes and the field tables. */
#ifndef HTTP_OPENAPI_H
#define HTTP_OPENAPI_H

#include <stddef.h>
#include <stdio.h>

#include "common/arena.h"

/* Append the document for the rows of `routes`. */
void openapi_write(struct buffer *out);
/* The same, made once in a process. Any thread. */
const char *openapi_text(size_t *length);
/* The same, and a line end. */
void openapi_print(FILE *out);

#endif
