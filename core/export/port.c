#include "export/port.h"

#include <string.h>

static bool is_name(const char *name, size_t size) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  if (size == 0 || size > TT_PORT_NAME || name[0] == '.') return false;
  for (size_t i = 0; i < size; i++)
    if (!name[i] || (!strchr(letters, name[i]) && !strchr("0123456789_-.", name[i]))) return false;
  return true;
}

static bool is_random_place(const tt_port *ports, int parameter_count, int at) {
  const tt_type *type = &ports[at].type;
  return at == parameter_count - 1 && type->dtype == TT_U32 && type->rank == 1 &&
         type->dims[0] == 4;
}

const char *tt_port_problem(const tt_port *ports, int parameter_count, int at, size_t name_size) {
  const tt_port *port = &ports[at];
  int64_t bytes = 0;
  bool output = at >= parameter_count;
  if (!is_name(port->name, name_size))
    return "has a name of other characters than letters, digits, '_', '-' and '.'";
  if (port->type.dtype == TT_C32 || !tt_type_bytes(&port->type, &bytes))
    return "has no type that a program can have";
  if (output != (port->kind == TT_PORT_OUTPUT)) return "is out of order";
  if (port->kind == TT_PORT_RANDOM && !is_random_place(ports, parameter_count, at))
    return "is not the last parameter of type u32[4]";
  if (port->writes < -1 || port->writes >= parameter_count || (port->writes >= 0 && !output))
    return "writes what is no parameter";
  if (port->writes < 0) return NULL;
  const tt_port *written = &ports[port->writes];
  if (written->kind == TT_PORT_RANDOM || !tt_type_equal(&port->type, &written->type))
    return "writes a parameter of another type";
  return NULL;
}
