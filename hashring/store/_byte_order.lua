-- Whether a text comes after another by its bytes, the order that nodes have for names. Lua's own `<`
-- takes the order of the server's locale.
local function comes_after(text, other)
  if text == other then
    return false
  end
  for i = 1, math.min(#text, #other) do
    local byte, other_byte = string.byte(text, i), string.byte(other, i)
    if byte ~= other_byte then
      return byte > other_byte
    end
  end
  return #text > #other
end
