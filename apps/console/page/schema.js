// JSON Schema, as far as tools use it: problems are said while a person types. The server has the last word.

const TYPES = {
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: (value) => Number.isInteger(value),
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
  array: Array.isArray,
  object: (value) => value !== null && typeof value === "object" && !Array.isArray(value),
};

export function problems(schema, value, where = "") {
  if (!schema || typeof schema !== "object") return [];
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) {
    const each = choices.map((choice) => problems(choice, value, where));
    return each.some((found) => !found.length) ? [] : each.at(0);
  }
  const types = [schema.type ?? []].flat();
  const name = where || "the arguments";
  if (types.length && !types.some((type) => TYPES[type]?.(value) ?? true)) return [`${name} must be ${types.join(" or ")}`];
  if (schema.enum && !schema.enum.includes(value)) return [`${name} must be one of ${schema.enum.join(", ")}`];
  const found = [];
  if (typeof value === "string") {
    if (value.length < schema.minLength) found.push(value ? `${name} must have at least ${schema.minLength} characters` : `${name} is empty`);
    if (value.length > schema.maxLength) found.push(`${name} must have at most ${schema.maxLength} characters`);
  }
  if (typeof value === "number") {
    if (value < schema.minimum) found.push(`${name} must be at least ${schema.minimum}`);
    if (value > schema.maximum) found.push(`${name} must be at most ${schema.maximum}`);
    if (value <= schema.exclusiveMinimum) found.push(`${name} must be more than ${schema.exclusiveMinimum}`);
  }
  if (TYPES.array(value) && schema.items)
    value.forEach((each, n) => found.push(...problems(schema.items, each, `${where}[${n}]`)));
  if (TYPES.object(value)) {
    for (const key of schema.required ?? []) if (!(key in value)) found.push(`${key} is missing`);
    for (const [key, each] of Object.entries(value)) {
      const known = schema.properties?.[key];
      if (known) found.push(...problems(known, each, where ? `${where}.${key}` : key));
      else if (schema.additionalProperties === false) found.push(`${key} is no argument of this tool`);
    }
  }
  return found;
}

// Whether a field of this schema is edited as plain text.
export function isText(schema) {
  return [schema?.type ?? (schema?.anyOf ?? []).map((each) => each.type)].flat().includes("string") && !schema.enum;
}
